"""Everything that makes a picture. Imports no Qt, ever, and no torch before it is needed."""
