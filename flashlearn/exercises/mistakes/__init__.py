"""Wrong answers that are often given, one file per notebook: `check` recognises them and says what is wrong."""
