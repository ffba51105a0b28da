"""Networks as ONNX files, for other engines. Training and playing do not use them."""
