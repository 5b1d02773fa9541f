"""The toolbox: small real tools over the files of one folder, served over MCP."""
