"""``foretrace job``: a module per question about the whole job; `app` lists them."""
