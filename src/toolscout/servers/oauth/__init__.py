"""OAuth logins at servers, and the tokens they give."""
