"""The controller: elections, placement, reassignment and deletion, decided from the image."""
