"""What a job needs and how fast it trains: sized without training, guessed, or measured from inside its trainers."""
