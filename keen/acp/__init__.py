"""keen as an agent of the Agent Client Protocol: requests in, updates out."""
