"""Properties of devices that losses, poolings and training use."""
