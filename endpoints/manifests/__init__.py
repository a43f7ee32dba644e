"""InferenceEndpointConfig objects: validation, import and export."""
