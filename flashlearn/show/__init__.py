"""What a notebook shows: pictures, animations, steppers, explorers, projector mode."""
