"""Controller mode: endpoints follow InferenceEndpointConfig objects of chosen namespaces."""
