"""HTTP: routes, problems, metrics exposition and the page. Handlers never touch the store."""
