"""bcrl's own folder of .npy files: written whole (folder.py) or
episode by episode (writer.py), read by memory map."""
