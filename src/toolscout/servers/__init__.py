"""Other servers behind the gateway: their configuration, their clients, their tools."""
