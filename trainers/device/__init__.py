"""What a device's memory needs: copies and its allocator."""
