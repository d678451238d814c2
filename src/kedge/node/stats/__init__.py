"""What pods use: measured each second, remembered for a day, published each tick."""
