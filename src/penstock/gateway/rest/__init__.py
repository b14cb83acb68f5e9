"""The routes of the HTTP door, a module for each family; `gateway.rest.route_table` lists them."""
