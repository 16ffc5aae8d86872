"""Losses, gradients and optimiser steps."""
