"""What games and bots may name, return and raise, over every way of playing them."""
