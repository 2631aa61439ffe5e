"""Files with columns: read, checked and extended in bounded memory."""
