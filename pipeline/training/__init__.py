"""Plain torch: one readable step, one readable loop, an exact distributed gradient, exact resume. `runner` alone knows Ray Train."""
