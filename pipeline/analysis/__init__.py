"""What the geometry of an embedding says about classes it has not seen: density, spectrum, similarities, train-test gap. No torch."""
