"""How a network is trained, what is kept of it, and how an interrupted training goes on."""
