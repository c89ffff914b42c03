"""OAuth logins at servers, and the tokens that they give."""
