"""What no other system answers: how another configuration would have served the recorded requests
(`whatif`), what to change (`advisor`), and how a strategy compares on live traffic (`canary`).
"""
