"""Everything that makes a picture. Imports no Qt, ever, and no torch until a picture, or `Engine.warm_up`, asks for it."""
