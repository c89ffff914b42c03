"""The weights of toolscout's ONNX tier: `model.onnx` and `tokenizer.json`, beside this file.

`toolscout.OnnxEncoder` finds them here and checks them before use; there is nothing to import.
"""
