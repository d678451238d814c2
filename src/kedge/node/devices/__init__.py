"""Devices of the machine that plugins offer: who offers which, who has which, what it takes."""
