"""What training minimises: one loss or regulariser per file, the formula on top."""
