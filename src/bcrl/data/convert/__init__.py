"""Files of any size into bcrl's own folder: a block of whole episodes at a time, through the readers of
data/sources and the checks of data/build."""
