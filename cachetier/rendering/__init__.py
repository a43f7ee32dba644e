"""What a worker must be given so that it caches as a spec says: arguments, environment, files,
volumes, and the sizes in words.

Pure: the same spec gives the same text, nothing is looked at or started. Secrets are named, never
contained. Must not know Django, endpoints or what provisions; can be imported without vLLM.
"""
