"""Parts of your own: params.yaml names them, as in `loss: {module: "parts.circle:Circle"}` for the class
Circle of parts/circle.py. docs/extending.md describes the kinds of parts."""
