"""The systems that ours is compared with, each behind one small interface (`base.System`)."""
