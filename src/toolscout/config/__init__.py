"""The configuration file: servers, gateway and sessions as checked values."""
