"""InferenceEndpointConfig objects: read and checked, made into endpoints, written out again."""
