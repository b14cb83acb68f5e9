"""The routes of the HTTP door, a module for each family; `http.table` lists them."""
