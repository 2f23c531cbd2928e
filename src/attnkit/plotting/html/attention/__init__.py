"""The page: one HTML file that shows every weight of some sentences and asks nobody for anything."""
