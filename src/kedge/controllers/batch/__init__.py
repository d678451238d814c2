"""Work that ends: Jobs, and what makes and removes them."""
