"""Django's backend for SQLite, with OneJournal:

    DATABASES = {"default": {"ENGINE": "onejournal.django", "NAME": BASE_DIR / "app.db"}}

`OPTIONS` takes Django's own options and those of `onejournal.connect`. `base` has the backend.
"""
