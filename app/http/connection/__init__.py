"""One HTTP connection: uvicorn's protocol with limits on everything that a client may send or withhold."""
