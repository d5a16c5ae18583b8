"""What everything else is built on: steps, the large memory, masks, checks of inputs; imports nothing of the rest."""
