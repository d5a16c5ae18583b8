"""The base of everything else: steps, HBM, masks, checks of inputs; imports nothing of the rest."""
