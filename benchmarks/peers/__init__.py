"""The peers: each module offers `VARIANTS`, what can be measured of it, and `DISTS`, whose versions are reported."""
