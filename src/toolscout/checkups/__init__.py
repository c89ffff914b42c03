"""What `toolscout doctor` looks at: one `Checkup` for each thing that may be wrong."""
