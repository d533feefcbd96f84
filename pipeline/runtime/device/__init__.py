"""Properties of devices that losses, poolings and training use, and the counting of products on a GPU."""
