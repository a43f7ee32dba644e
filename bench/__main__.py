"""`make bench`: every measurement of this folder, one after the other."""

from bench import cache_ttft

if __name__ == "__main__":
    cache_ttft.main()
