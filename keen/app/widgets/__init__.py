"""What the conversation's screen is made of; each draws itself as lines."""
