"""Dead-lettered messages: finding, reading, redriving and replaying them."""
