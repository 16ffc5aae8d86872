"""Modules of torch, which importing this does not: they are imported by whoever builds one."""
