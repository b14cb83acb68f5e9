"""Routes of the REST API, a module for each family; `gateway.rest.route_table` lists them."""
