"""A provider on the loopback that speaks keen's six protocols and reads every request strictly."""
