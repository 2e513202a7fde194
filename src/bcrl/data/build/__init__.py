"""What a user has in memory -> `Dataset`: plain arrays, transitions in
no order, episodes as dicts, several datasets."""
