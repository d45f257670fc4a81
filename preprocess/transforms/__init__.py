"""The built-in transforms: frozen dataclasses whose fields are their parameters.

Each has `output_shape(shape) -> shape` and is called with (image, rng, out) -> image, see
`preprocess.transforms.transform`. Images are (height, width, channels) and keep their dtype: normalisation belongs to
the trainer.
"""
